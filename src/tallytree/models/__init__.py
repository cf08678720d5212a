"""The public models: they hold parameters, cache answers and give them their shapes; the engine has the numbers."""
