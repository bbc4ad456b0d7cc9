"""UniLab learner package."""
