package scope

// MaxPending is the bound of what Pending returns while requests close.
const MaxPending = maxPending
