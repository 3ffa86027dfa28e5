"""The cells search: approximate nearest neighbours in parts, trees and rounds."""
