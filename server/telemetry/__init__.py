"""What this server tells of itself: metrics, spans, and where they are to be had."""
