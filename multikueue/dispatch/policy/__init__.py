# SPDX-License-Identifier: Apache-2.0
"""What may be sent to a worker cluster: namespaces, service accounts, Pod Security."""
