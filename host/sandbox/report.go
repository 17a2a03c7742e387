package sandbox

import "time"

// Report is what admission found out about a module.
type Report struct {
	Path       string        // how calls run: one of the constants below
	Manifest   []byte        // the section's, else what carrel_describe wrote, else nil
	Described  bool          // the manifest came from carrel_describe
	Exports    []string      // functions that can be called: () -> i32, sorted, host names not among them
	Imports    []string      // "module.name", in the module's order
	CompileFor time.Duration // how long the engine compiled
	Log        []LogLine     // what _initialize and carrel_describe logged, also if they failed
}

// The values of Report.Path.
const (
	PathPrompt = "prompt" // there is no code: nothing of the module ever executes
	PathReset  = "reset"  // an instance is restored after each call
	PathImage  = "image"  // a new instance with the initialised state for each call
	PathPlain  = "plain"  // a new instance for each call, which initialises itself
)

// Has reports whether the module exports a function that can be called.
func (r Report) Has(export string) bool {
	for _, e := range r.Exports {
		if e == export {
			return true
		}
	}
	return false
}
