"""The broker's wire protocol: frames, commands, their headers and bodies. Each module decodes or encodes one concept of the broker."""
