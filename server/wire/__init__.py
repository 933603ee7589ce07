"""Between the messages of the contract and the plain records of the store; no rules live here."""
