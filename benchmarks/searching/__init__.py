"""How soon `explore` finds planted bugs in a trainer of commands, and how soon chance alone does."""
