module github.com/fencekit/fencekit-go

go 1.26.0
