"""The commands of `diloco-chaos`, by what they are about."""
