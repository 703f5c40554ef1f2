// Package spelling finds what was probably meant.
package spelling

// Distance counts the letters to change, add or remove to make a into b.
func Distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}

// Nearest returns the one of known that is closest to s, empty if none is close.
func Nearest(s string, known []string) string {
	best, distance := "", min(4, len(s)/2+1)
	for _, k := range known {
		if d := Distance(s, k); d < distance {
			best, distance = k, d
		}
	}
	return best
}
