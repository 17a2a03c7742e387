package module

import "unicode/utf8"

// reader is a cursor over a part of the file. Offsets are always those of the
// whole file, so that messages name bytes that a person can look up.
type reader struct {
	all   []byte
	pos   int
	end   int
	where string
}

// take returns a reader of the next n bytes, which must be there, and moves
// behind them.
func (r *reader) take(n int, where string) *reader {
	sub := &reader{all: r.all[:r.pos+n], pos: r.pos, end: r.pos + n, where: where}
	r.pos += n
	return sub
}

func (r *reader) left() int { return r.end - r.pos }

func (r *reader) byte(what string) (byte, error) {
	if r.pos >= r.end {
		return 0, malformed(r.pos, r.where, "the %s is missing: it ends here", what)
	}
	c := r.all[r.pos]
	r.pos++
	return c, nil
}

// u32 reads an unsigned LEB128 number. Padding with empty bytes is allowed up
// to five bytes in all, as the specification has it: linkers do pad.
func (r *reader) u32(what string) (uint32, error) {
	v, err := r.leb(what, 32)
	return uint32(v), err
}

func (r *reader) leb(what string, bits uint) (uint64, error) {
	start := r.pos
	var v uint64
	for shift := uint(0); ; shift += 7 {
		c, err := r.byte(what)
		if err != nil {
			return 0, err
		}
		if room := bits - shift; room < 7 && c>>room != 0 {
			return 0, malformed(start, r.where, "the %s does not fit into %d bits", what, bits)
		}
		v |= uint64(c&0x7f) << shift
		if c&0x80 == 0 {
			return v, nil
		}
	}
}

// constant skips a signed constant of that many bits.
func (r *reader) constant(bits uint) error {
	_, err := r.signed("constant", bits)
	return err
}

// signed reads a signed LEB128 number of that many bits.
func (r *reader) signed(what string, bits uint) (int64, error) {
	start := r.pos
	var v int64
	for shift := uint(0); ; shift += 7 {
		c, err := r.byte(what)
		if err != nil {
			return 0, err
		}
		v |= int64(c&0x7f) << shift
		if room := bits - shift; room <= 7 {
			// The last byte: what is above the number's bits repeats its sign.
			above := int8(c<<1) >> room
			if c&0x80 != 0 || above != 0 && above != -1 {
				return 0, malformed(start, r.where, "the %s does not fit into %d bits", what, bits)
			}
		}
		if c&0x80 == 0 {
			if shift+7 < 64 && c&0x40 != 0 {
				v |= -1 << (shift + 7)
			}
			return v, nil
		}
	}
}

// skip moves behind n bytes of any value.
func (r *reader) skip(n int, what string) error {
	if n > r.left() {
		return malformed(r.pos, r.where, "the %s is cut off: it has %d bytes, but only %d follow", what, n, r.left())
	}
	r.pos += n
	return nil
}

// name reads a length and that many bytes of UTF-8.
func (r *reader) name(what string) (string, error) {
	start := r.pos
	n, err := r.u32(what + " length")
	if err != nil {
		return "", err
	}
	if int64(n) > int64(r.left()) {
		return "", malformed(start, r.where, "the %s says it is %d bytes long, but only %d follow", what, n, r.left())
	}
	raw := r.all[r.pos : r.pos+int(n)]
	if !utf8.Valid(raw) {
		return "", malformed(start, r.where, "the %s is not valid UTF-8", what)
	}
	r.pos += int(n)
	return string(raw), nil
}

type vectorLimit struct {
	name string
	most int
}

// vector reads a declared count. It must be within the limit, if there is
// one, and the bytes that remain must be able to hold that many elements of
// the least size.
func (r *reader) vector(l vectorLimit, least int) (int, error) {
	start := r.pos
	n, err := r.u32("count")
	if err != nil {
		return 0, err
	}
	if l.name != "" && int64(n) > int64(l.most) {
		return 0, overLimit(l.name, "byte %d (%s): it declares %d elements, at most %d are allowed",
			start, r.where, n, l.most)
	}
	if int64(n)*int64(least) > int64(r.left()) {
		return 0, malformed(start, r.where, "it declares %d elements, but only %d bytes follow", n, r.left())
	}
	return int(n), nil
}

func (r *reader) done() error {
	if r.pos != r.end {
		return malformed(r.pos, r.where, "%d bytes are left over at its end", r.left())
	}
	return nil
}
