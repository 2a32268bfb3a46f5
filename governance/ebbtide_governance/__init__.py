"""What is allowed and who said so: redaction, settlement, facts, policy, groups, and the read model."""
