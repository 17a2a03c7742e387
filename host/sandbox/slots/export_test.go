package slots

// Left returns how much a pool without users and waiters remembers.
func Left(p *Pool) int { return len(p.held) + len(p.waiting) + len(p.turns) }
