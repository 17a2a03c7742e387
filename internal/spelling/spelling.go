// Package spelling guesses which name a misspelt one was meant to be.
package spelling

// Nearest returns the one of some names that a misspelt one is most likely
// meant to be, or nothing if none is near it.
func Nearest(name string, names []string) string {
	best, distance := "", 1+len(name)/3
	for _, n := range names {
		if d := Distance(name, n, distance); d <= distance && (best == "" || d < distance) {
			best, distance = n, d
		}
	}
	return best
}

// Distance counts the insertions, deletions and replacements between two
// names, in bytes. It takes time in the product of their lengths, but for names
// whose lengths differ by more than most: these are most+1 apart.
func Distance(a, b string, most int) int {
	if len(a) > len(b)+most || len(b) > len(a)+most {
		return most + 1
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
