"""What all services share about requests and answers: errors, validation, pagination, sizes and idempotency."""
