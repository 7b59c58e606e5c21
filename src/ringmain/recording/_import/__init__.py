"""MCAP files and ROS bags into a recording."""
