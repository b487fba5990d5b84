"""The rules of groups, a room per protocol; what protocols share stands here. Pure: time comes in as an argument."""
