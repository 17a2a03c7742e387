package abi

// Errno is what a host function answers, negated, when it refuses. The
// numbers are this contract's own and never a C library's.
type Errno int32

// The errno values of carrel/v1.
const (
	EINVAL Errno = iota + 1
	EPERM
	ENOENT
	E2BIG
	ECANCELED
	ETIMEDOUT
	EBUSY
	EQUOTA
	EIO
	ENOSYS
)

var errnoNames = [...]string{
	EINVAL: "EINVAL", EPERM: "EPERM", ENOENT: "ENOENT", E2BIG: "E2BIG",
	ECANCELED: "ECANCELED", ETIMEDOUT: "ETIMEDOUT", EBUSY: "EBUSY",
	EQUOTA: "EQUOTA", EIO: "EIO", ENOSYS: "ENOSYS",
}

// String returns the errno's symbolic name.
func (e Errno) String() string {
	if e > 0 && int(e) < len(errnoNames) {
		return errnoNames[e]
	}
	return "EUNKNOWN"
}

// WASIENOSYS is what unimplemented WASI functions return (preview 1: nosys).
const WASIENOSYS = 52
