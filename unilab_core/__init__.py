"""UniLab core package."""
