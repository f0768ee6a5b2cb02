"""Maps in ONNX models; `attemper.export` has the public names."""
