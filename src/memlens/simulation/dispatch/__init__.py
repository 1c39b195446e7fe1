"""The way of one operator: what is known of it, the rule that applies, the ledger, the event."""
