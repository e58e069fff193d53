# agentcli on a CPU, from a clone. It was never built where it was written, for want of Docker: tell us if it does not.
#   docker build -t agentcli .
#   docker run --rm -it -v "$PWD:/work" agentcli doctor
FROM python:3.11-slim AS build
RUN apt-get update && apt-get install --yes --no-install-recommends g++ make && rm -rf /var/lib/apt/lists/*
COPY . /opt/agentcli
# No GPU is seen here: install.sh takes torch's CPU build.
RUN /opt/agentcli/scripts/install.sh /opt/venv alfworld,plots,tools

FROM python:3.11-slim
COPY --from=build /opt/agentcli /opt/agentcli
COPY --from=build /opt/venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH OMP_NUM_THREADS=1
WORKDIR /work
ENTRYPOINT ["agentcli"]
CMD ["--help"]
