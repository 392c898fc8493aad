"""The broker's wire protocol: frames, commands, their headers and bodies. One concept of the broker a module; bytes in, values out."""
