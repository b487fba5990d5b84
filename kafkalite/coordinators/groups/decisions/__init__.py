"""The rules of groups with assignments made by the coordinator: pure, time comes in as an argument."""
