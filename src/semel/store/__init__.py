"""Stores: a small synchronous, batch-first contract, and one implementation per dialect."""
