"""The files under config/, in the JSON dialect of fastjson."""
