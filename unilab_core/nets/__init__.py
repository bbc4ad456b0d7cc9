"""Networks (torch): mlp, squashed_gaussian, critics, normalizer, policy_file (policy.pt)."""
