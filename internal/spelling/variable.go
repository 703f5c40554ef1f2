package spelling

import (
	"strings"
	"unicode"
)

// Capitals makes CRM_EU of crm-eu, and DATABASE_URL of database.url: a name as part of the name of an environment variable.
func Capitals(name string) string { return strings.ToUpper(separators.Replace(name)) }

var separators = strings.NewReplacer(".", "_", "-", "_")

// Variable makes BASE_URL of BaseURL.
func Variable(name string) string {
	var b strings.Builder
	letters := []rune(name)
	for i, r := range letters {
		if i > 0 && unicode.IsUpper(r) && (!unicode.IsUpper(letters[i-1]) || i+1 < len(letters) && unicode.IsLower(letters[i+1])) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToUpper(r))
	}
	return b.String()
}
