# docker build -t gt-bench .                                        for CPUs
# docker build -t gt-bench --build-arg TORCH=cuda .                 for CUDA: torch and triton from PyPI's CUDA build
# docker run --rm -v "$PWD/store:/bench/store" gt-bench             the embedded suite
FROM python:3.11-slim
ARG TORCH=cpu
RUN apt-get update && apt-get install -y --no-install-recommends git make && rm -rf /var/lib/apt/lists/*
WORKDIR /bench
COPY . .
RUN if [ "$TORCH" = cpu ]; then export PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu; fi && make .venv/.ready
ENV PATH="/bench/.venv/bin:$PATH"
CMD ["make", "reproduce"]
