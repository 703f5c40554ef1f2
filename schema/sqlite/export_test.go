package sqlite

// SQLPeek is the statement of a look.
const SQLPeek = sqlPeek
