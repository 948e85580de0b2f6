"""The mini pair: target, drafters, their training and export."""
