# The server image: the locked dependencies, the server and the reporter (whose reader of log lines the server uses,
# and which deploy/runtimes copies into training pods), nothing else, as a user without rights.
# By digest: whoever replaces the tag in the registry replaces nothing here. This is 3.14.7 of August 2026. For a newer one:
# docker buildx imagetools inspect docker.io/library/python:3.14-slim
ARG PYTHON=docker.io/library/python:3.14-slim@sha256:ce40764625a4ff50df3548277632e7f96c4e77fe75fa848aae9885476e7df5a4
FROM ${PYTHON} AS build
WORKDIR /src
COPY requirements/server.txt requirements/build.txt requirements/
RUN python -m venv --without-pip /opt/visibility \
 && pip --python /opt/visibility/bin/python install --no-cache-dir --no-compile --require-hashes -r requirements/server.txt \
 && pip install --no-cache-dir --require-hashes -r requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY openapi openapi
COPY visibility_api visibility_api
COPY reporter reporter
# Without build isolation, which would fetch whatever setuptools is newest, unlocked.
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels ./reporter . \
 && pip --python /opt/visibility/bin/python install --no-cache-dir --no-compile --no-deps --no-index /wheels/*.whl
# By content, not by the time of a file: so images of the same commit are the same.
RUN find /opt/visibility -name __pycache__ -prune -exec rm -r {} + \
 && python -m compileall -q --invalidation-mode unchecked-hash /opt/visibility/lib

FROM ${PYTHON}
COPY --from=build /opt/visibility /opt/visibility
USER 65532:65532
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
EXPOSE 10250
ENTRYPOINT ["/opt/visibility/bin/visibility-api"]
CMD ["serve"]
