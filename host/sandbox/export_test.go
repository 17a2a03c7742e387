package sandbox

// Programs returns how many compiled modules the open plugins of a sandbox
// use together.
func Programs(s *Sandbox) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.programs)
}
