"""UniLab collector package."""
