"""Children of an environment: how they are launched, asked, leased and lent a pytest."""
