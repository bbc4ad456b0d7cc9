"""UniLab ipc package."""
