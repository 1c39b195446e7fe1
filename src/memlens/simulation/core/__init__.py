"""One simulation: its ledger of storages, its phases, its known values, and who asked for what."""
