"""What the paper and its public summaries claim, beside what this project measures of it: `docs/claims.md`."""
