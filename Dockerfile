# The command line in a container:
#   docker build --tag attemper .
#   docker run --rm --user "$(id -u)" --volume "$PWD:/data" attemper check val.npz
FROM python:3.13.9-slim-bookworm AS build
WORKDIR /source
COPY . .
RUN python -m pip wheel --no-cache-dir --constraint constraints.txt --wheel-dir /wheels ".[plots,report,parquet,onnx,remote]"

FROM python:3.13.9-slim-bookworm
RUN useradd --create-home --uid 1000 attemper
# hadolint ignore=DL3013
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    python -m pip install --no-cache-dir --no-index --find-links /wheels "attemper[plots,report,parquet,onnx,remote]"
# matplotlib writes its list of fonts; with --user the home of attemper is not writable.
ENV MPLCONFIGDIR=/tmp
USER 1000
WORKDIR /data
ENTRYPOINT ["attemper"]
CMD ["--help"]
