package sandbox

// IdleMemory returns the memory of the instance that the plugin's next call
// runs in; nil if none waits.
func IdleMemory(p *Plugin) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) == 0 {
		return nil
	}
	in := p.idle[len(p.idle)-1].instance
	return in.slot.Bytes(int(in.module.Memory().Size()))
}
