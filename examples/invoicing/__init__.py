"""An invoicing agent over forty invoices: a keyed charge, a looked-up mail, and an opaque post."""
