"""UniLab monitor package."""
