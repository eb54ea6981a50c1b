# syntax=docker/dockerfile:1

# Pin both by digest for a release: --build-arg RUST_IMAGE=rust:1.89-slim-trixie@sha256:…
ARG RUST_IMAGE=rust:1.89-slim-trixie
ARG BASE_IMAGE=debian:trixie-slim

# On the machine that builds, whichever the image is for.
FROM --platform=$BUILDPLATFORM ${RUST_IMAGE} AS build
ARG TARGETARCH
# Features of the crate, such as otlp.
ARG FEATURES
WORKDIR /pliant
# What it depends on is built before the sources are copied, which change more often.
COPY Cargo.toml Cargo.lock build.rs ./
COPY proto proto
COPY crates/copy/Cargo.toml crates/copy/
COPY crates/csi/Cargo.toml crates/csi/build.rs crates/csi/
COPY crates/fake-apiserver/Cargo.toml crates/fake-apiserver/
COPY crates/fake-host/Cargo.toml crates/fake-host/
COPY crates/k8s/Cargo.toml crates/k8s/
COPY crates/kubectl/Cargo.toml crates/kubectl/
COPY crates/lvm/Cargo.toml crates/lvm/
COPY crates/node/Cargo.toml crates/node/
COPY crates/operator/Cargo.toml crates/operator/
COPY crates/volume/Cargo.toml crates/volume/
COPY e2e/image e2e/image
COPY packaging/notices packaging/
RUN e2e/image/build --dependencies
COPY . .
# The commit that it is built from, for the metric pliant_build_info.
ARG PLIANT_REVISION
RUN e2e/image/build /out

FROM ${BASE_IMAGE}
LABEL org.opencontainers.image.title="pliant" \
      org.opencontainers.image.description="LVM storage driver for Kubernetes whose volumes grow, shrink and move while they are in use" \
      org.opencontainers.image.licenses="Apache-2.0"
# The newest LVM that the distribution has; the list of packages is the one that `pliant doctor` checks.
COPY e2e/image/packages e2e/image/install /usr/local/share/pliant/
RUN /usr/local/share/pliant/install
COPY --from=build /out/pliant /usr/local/bin/pliant
COPY --from=build /out/THIRD-PARTY-NOTICES /usr/share/doc/pliant/
COPY LICENSE /usr/share/doc/pliant/copyright
# Root: mounting file systems and changing device-mapper tables need CAP_SYS_ADMIN in the host's own
# user namespace, and the nodes of disks belong to root.
USER 0:0
ENTRYPOINT ["/usr/local/bin/pliant"]
CMD ["standalone"]
