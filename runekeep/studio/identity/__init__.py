"""Who uses the studio: logins, and the signed cookie."""
