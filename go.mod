module github.com/fencekit/fencekit-go

go 1.26.0

require (
	github.com/go-json-experiment/json v1.27.2
	github.com/stretchr/testify v1.12.1
	google.golang.org/protobuf v1.36.12
	pgregory.net/rapid v1.3.0
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect
