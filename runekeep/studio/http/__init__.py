"""What every request goes through: headers, hosts, forged requests, errors."""
