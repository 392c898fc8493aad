"""The timer of a broker 5.x: units of timerlog, slots of timerwheel."""
