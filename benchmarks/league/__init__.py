"""The league: public fault-tolerant trainers under the same twelve faults. `make league`, docs/league.md."""
