"""What rewrites a memory's batches: hindsight goals, states of consolidation."""
