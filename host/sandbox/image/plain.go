package image

import "os"

// plainImage is an image in Go memory.
type plainImage struct {
	initial []byte
	max     int
}

func (im *plainImage) slot() (memory, error) { return &plain{im: im}, nil }

func (im *plainImage) bytes() int { return len(im.initial) }

func (im *plainImage) close() error { return nil }

// plain is a slot in Go memory.
type plain struct {
	im  *plainImage
	buf []byte // as large as was ever asked for, whole pages
}

// bytes allocates what is missing, and a quarter more than there was, so that
// growing in small steps does not copy everything at each. It does not reserve
// the maximum: the garbage collector would count it as used.
func (p *plain) bytes(n int) ([]byte, error) {
	if n > len(p.buf) || p.buf == nil {
		ahead := min(len(p.buf)+len(p.buf)/4, p.im.max)
		grown := make([]byte, wholePages(max(n, ahead)))
		if p.buf == nil {
			copy(grown, p.im.initial)
		} else {
			copy(grown, p.buf)
			// What the smaller one was too short to show.
			if at := len(p.buf); at < len(p.im.initial) {
				copy(grown[at:], p.im.initial[at:])
			}
		}
		p.buf = grown
	}
	return p.buf[:n:n], nil
}

func (p *plain) reset() int {
	n := copy(p.buf, p.im.initial)
	clear(p.buf[n:])
	return len(p.buf) / os.Getpagesize()
}

// trim cannot let the buffer go: the instance still refers to it.
func (p *plain) trim() { p.reset() }

func (p *plain) kept() int { return len(p.buf) }

func (p *plain) close() error {
	p.buf = nil
	return nil
}

// wholePages rounds n up to a multiple of the system's page. n is at most
// largest, so that it cannot overflow.
func wholePages(n int) int {
	page := os.Getpagesize()
	return (n + page - 1) / page * page
}
