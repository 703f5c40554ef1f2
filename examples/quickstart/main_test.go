package main

// It prints what the README says it prints.
func Example() {
	main()
	// Output: welcome, Ada
}
