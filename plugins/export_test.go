package plugins

// TextBytes is what a loaded version is said to take besides its code.
func TextBytes(l *Loaded) int64 { return l.texts }
